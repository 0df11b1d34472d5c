<!-- tree.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="html"/><xsl:template match="doc"><ul><xsl:apply-templates select="chapter"/></ul></xsl:template><xsl:template match="chapter|section"><li><xsl:number level="multiple" count="chapter|section" format="1.1 "/><xsl:value-of select="title"/><xsl:if test="section"><ul><xsl:apply-templates select="section"/></ul></xsl:if></li></xsl:template>
</xsl:stylesheet>
