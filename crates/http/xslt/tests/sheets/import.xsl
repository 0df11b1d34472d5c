<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:import href="part.xsl"/><xsl:variable name="over">main</xsl:variable><xsl:template match="/"><xsl:value-of select="concat($shared,$over)"/><xsl:apply-templates select="//book[position() &lt; 3]"/><xsl:apply-templates select="//book[1]/author"/><xsl:call-template name="greet"><xsl:with-param name="who" select="1"/></xsl:call-template></xsl:template><xsl:template match="book">[<xsl:apply-imports/>]</xsl:template>
</xsl:stylesheet>
