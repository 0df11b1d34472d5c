<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/><xsl:template name="n"><xsl:param name="i"/><xsl:if test="$i &gt; 0"><xsl:value-of select="$i mod 10"/><xsl:call-template name="n"><xsl:with-param name="i" select="$i - 1"/></xsl:call-template></xsl:if></xsl:template><xsl:template match="/"><xsl:call-template name="n"><xsl:with-param name="i" select="900"/></xsl:call-template></xsl:template>
</xsl:stylesheet>
