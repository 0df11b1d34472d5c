<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="by" match="book" use="author"/><xsl:key name="by" match="book" use="year"/><xsl:key name="attr" match="@id" use="."/><xsl:template match="/"><r><xsl:value-of select="count(key('by','Ida'))"/><xsl:for-each select="key('by',//book/year)"><xsl:value-of select="@id"/></xsl:for-each><xsl:value-of select="key('by','2004')[2]/title"/><xsl:value-of select="name(key('attr','b2'))"/></r></xsl:template>
</xsl:stylesheet>
