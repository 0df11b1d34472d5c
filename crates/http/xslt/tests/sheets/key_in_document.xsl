<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="k" match="i" use="@n"/><xsl:template match="/"><r><xsl:for-each select="document('list.xml')"><xsl:value-of select="count(key('k','5'))"/></xsl:for-each><xsl:value-of select="count(key('k','5'))"/></r></xsl:template>
</xsl:stylesheet>
