<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:value-of select="shop/@name"/><xsl:value-of select="//nothing"/><xsl:value-of select="//title"/></r></xsl:template>
</xsl:stylesheet>
