<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/><xsl:decimal-format name="de" decimal-separator="," grouping-separator="." NaN="keine" infinity="viel"/><xsl:decimal-format minus-sign="~" zero-digit="0"/><xsl:template match="/"><xsl:value-of select="format-number(1234.5,'#.##0,00','de')"/>,<xsl:value-of select="format-number(number('a'),'0','de')"/>,<xsl:value-of select="format-number(-1 div 0,'0','de')"/>,<xsl:value-of select="format-number(-5,'0')"/></xsl:template>
</xsl:stylesheet>
