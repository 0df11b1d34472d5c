<!-- tree.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:for-each select="//title">
<n><xsl:number/>:<xsl:number level="any"/>:<xsl:number level="multiple" count="chapter|section|title" format="1.A.i"/>:<xsl:number count="chapter"/>:<xsl:number level="any" count="p" from="chapter"/></n></xsl:for-each></r></xsl:template>
</xsl:stylesheet>
