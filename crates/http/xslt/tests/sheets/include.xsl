<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:include href="part.xsl"/><xsl:template match="/"><xsl:apply-templates select="//book"/><xsl:call-template name="greet"/></xsl:template>
</xsl:stylesheet>
