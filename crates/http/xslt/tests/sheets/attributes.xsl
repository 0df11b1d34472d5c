<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r a="1" b="{1+1}{{x}}{'}'}"><xsl:attribute name="a">new</xsl:attribute><xsl:attribute name="c"><xsl:for-each select="//book">-<xsl:value-of select="@id"/></xsl:for-each></xsl:attribute><xsl:if test="1"><xsl:attribute name="d"/></xsl:if><x><xsl:copy-of select="//book[1]/@*"/></x></r></xsl:template>
</xsl:stylesheet>
