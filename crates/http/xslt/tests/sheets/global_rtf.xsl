<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:exsl="http://exslt.org/common" xmlns:math="http://exslt.org/math" xmlns:set="http://exslt.org/sets" xmlns:str="http://exslt.org/strings" xmlns:dyn="http://exslt.org/dynamic" xmlns:date="http://exslt.org/dates-and-times" xmlns:func="http://exslt.org/functions" xmlns:my="urn:my" exclude-result-prefixes="exsl math set str dyn date func my" extension-element-prefixes="func">
<xsl:variable name="t"><x>1</x><x>2</x></xsl:variable><xsl:variable name="n" select="exsl:node-set($t)/x"/><xsl:template match="/"><r><xsl:for-each select="//book"><xsl:variable name="p" select="position()"/><xsl:copy-of select="$n[$p]"/></xsl:for-each></r></xsl:template>
</xsl:stylesheet>
