<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/><xsl:template match="/"><xsl:for-each select="//i"/><xsl:number value="3"/>,<xsl:number value="28" format="a"/>,<xsl:number value="703" format="A"/>,<xsl:number value="1999" format="i"/>,<xsl:number value="4" format="I."/>,<xsl:number value="7" format="(001)"/>,<xsl:number value="1234567" grouping-separator="," grouping-size="3"/>,<xsl:number value="2.5"/>,<xsl:number value="0"/>,<xsl:number value="12" format="*"/>,<xsl:number value="'x'"/>,<xsl:number value="0" format="a"/>,<xsl:number value="9" format="1)"/>,<xsl:number value="6000" format="I"/></xsl:template>
</xsl:stylesheet>
