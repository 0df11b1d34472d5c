<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:copy-of select="//book[2]"/><xsl:copy-of select="//x:tag" xmlns:x="urn:x"/><xsl:copy-of select="1 div 0"/><xsl:copy-of select="//comment()"/><xsl:copy-of select="true()"/></r></xsl:template>
</xsl:stylesheet>
