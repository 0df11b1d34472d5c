<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:exsl="http://exslt.org/common" xmlns:math="http://exslt.org/math" xmlns:set="http://exslt.org/sets" xmlns:str="http://exslt.org/strings" xmlns:dyn="http://exslt.org/dynamic" xmlns:date="http://exslt.org/dates-and-times" xmlns:func="http://exslt.org/functions" xmlns:my="urn:my" exclude-result-prefixes="exsl math set str dyn date func my" extension-element-prefixes="func">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="dyn:evaluate('count(//book)')"/><xsl:text>|</xsl:text>
<xsl:value-of select="dyn:evaluate('//title[2]')"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(dyn:map(//book,'title'))"/><xsl:text>|</xsl:text>
<xsl:value-of select="dyn:map(//book,'@id')[2]"/><xsl:text>|</xsl:text>
<xsl:value-of select="dyn:evaluate('1+')"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
