<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:copy-of select="document('list.xml')"/><xsl:value-of select="count(document('')//xsl:template)"/><xsl:for-each select="document('list.xml')//i"><xsl:sort select="@n" data-type="number"/><xsl:value-of select="@n"/></xsl:for-each><xsl:value-of select="count(document('none.xml'))"/></r></xsl:template>
</xsl:stylesheet>
