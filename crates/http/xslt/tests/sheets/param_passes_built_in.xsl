<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><xsl:apply-templates><xsl:with-param name="q" select="5"/></xsl:apply-templates></xsl:template><xsl:template match="book[1]"><xsl:param name="q" select="0"/><q><xsl:value-of select="$q"/></q></xsl:template><xsl:template match="text()"/>
</xsl:stylesheet>
