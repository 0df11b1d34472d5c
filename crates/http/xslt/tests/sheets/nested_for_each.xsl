<!-- tree.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:for-each select="//chapter"><c><xsl:variable name="pos" select="position()"/><xsl:for-each select=".//p"><p><xsl:value-of select="concat($pos,'.',position(),'/',last())"/></p></xsl:for-each></c></xsl:for-each></r></xsl:template>
</xsl:stylesheet>
