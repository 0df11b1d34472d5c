<!-- tree.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:apply-templates select="//p"><xsl:sort select="." order="descending"/></xsl:apply-templates></r></xsl:template><xsl:template match="p"><p n="{position()}/{last()}"><xsl:number level="any"/></p></xsl:template>
</xsl:stylesheet>
