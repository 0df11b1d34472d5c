<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:apply-templates select="//title" mode="m"/><xsl:apply-templates select="//title[1]"/><xsl:apply-templates select="//book[1]" mode="none"/></r></xsl:template><xsl:template match="title" mode="m"><m><xsl:value-of select="."/></m></xsl:template><xsl:template match="title">plain</xsl:template>
</xsl:stylesheet>
