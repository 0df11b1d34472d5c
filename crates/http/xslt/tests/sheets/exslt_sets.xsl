<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:exsl="http://exslt.org/common" xmlns:math="http://exslt.org/math" xmlns:set="http://exslt.org/sets" xmlns:str="http://exslt.org/strings" xmlns:dyn="http://exslt.org/dynamic" xmlns:date="http://exslt.org/dates-and-times" xmlns:func="http://exslt.org/functions" xmlns:my="urn:my" exclude-result-prefixes="exsl math set str dyn date func my" extension-element-prefixes="func">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="count(set:distinct(//author))"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(set:difference(//book,//book[1]))"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(set:intersection(//book,//*[note]))"/><xsl:text>|</xsl:text>
<xsl:value-of select="set:has-same-node(//book,//book[2])"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(set:leading(//book,//book[3]))"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(set:trailing(//book,//book[3]))"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(set:leading(//book,//none))"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(set:leading(//book,//title))"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
