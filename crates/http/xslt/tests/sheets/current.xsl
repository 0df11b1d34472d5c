<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:for-each select="//book"><xsl:value-of select="count(//book[author=current()/author])"/>,</xsl:for-each></r></xsl:template>
</xsl:stylesheet>
