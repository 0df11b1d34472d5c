<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="format-number(1234567.891,'#,##0.00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.5,'#%')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(-3,'0.0;(0.0)')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(-3,'0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0,'#')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.126,'0.##')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.125,'.00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(1234,'00000')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(1 div 0,'0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(number('x'),'0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(12,'$0.00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.256,'0.0%')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(1000000,'#,###')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(3.14159,'0.0###')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(-0.4,'0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(99.995,'#.00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.5,'#.00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.33,'#.##')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.5,'#.0#')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.5,'.##')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0,'#.##')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0,'.##')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.001,'#')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(12345,'#,##,##0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.00001,'0.###')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(1e10,'#')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(15,'000;-000')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(1234.5,'###0.0#')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(2,'0 items')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(-1234.5,'#,##0.00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(0.5,'0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(1.5,'0')"/><xsl:text>|</xsl:text>
<xsl:value-of select="format-number(2.5,'0')"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
