<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template name="t"><xsl:param name="a" select="1"/><xsl:param name="b"><i>x</i></xsl:param>[<xsl:value-of select="$a"/>,<xsl:copy-of select="$b"/>]</xsl:template><xsl:template match="/"><r><xsl:call-template name="t"/><xsl:call-template name="t"><xsl:with-param name="a" select="//book[2]/title"/><xsl:with-param name="b"><xsl:call-template name="t"/></xsl:with-param><xsl:with-param name="zz" select="1"/></xsl:call-template><xsl:apply-templates select="//empty"><xsl:with-param name="q" select="5"/></xsl:apply-templates></r></xsl:template><xsl:template match="empty"><xsl:param name="q"/><q><xsl:value-of select="$q"/></q></xsl:template>
</xsl:stylesheet>
