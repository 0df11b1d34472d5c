<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:comment>a<xsl:value-of select="count(//book)"/></xsl:comment><xsl:processing-instruction name="{'php'}"> echo <xsl:text>1</xsl:text></xsl:processing-instruction></r></xsl:template>
</xsl:stylesheet>
