<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:for-each select="//book"><xsl:sort select="author"/><xsl:sort select="@price" data-type="number" order="descending"/><b><xsl:value-of select="@id"/></b></xsl:for-each><xsl:apply-templates select="//book"><xsl:sort select="title" order="{'descending'}"/></xsl:apply-templates></r></xsl:template><xsl:template match="book"><t><xsl:value-of select="title"/><xsl:value-of select="position()"/></t></xsl:template>
</xsl:stylesheet>
