<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="0.1 + 0.2"/><xsl:text>|</xsl:text>
<xsl:value-of select="1 div 3"/><xsl:text>|</xsl:text>
<xsl:value-of select="10 div 3"/><xsl:text>|</xsl:text>
<xsl:value-of select="1e3"/><xsl:text>|</xsl:text>
<xsl:value-of select="100 * 1.1"/><xsl:text>|</xsl:text>
<xsl:value-of select="-7 mod 3"/><xsl:text>|</xsl:text>
<xsl:value-of select="7 mod -3"/><xsl:text>|</xsl:text>
<xsl:value-of select="5.5 mod 2"/><xsl:text>|</xsl:text>
<xsl:value-of select="1 div 0"/><xsl:text>|</xsl:text>
<xsl:value-of select="-1 div 0"/><xsl:text>|</xsl:text>
<xsl:value-of select="0 div 0"/><xsl:text>|</xsl:text>
<xsl:value-of select="10000000000"/><xsl:text>|</xsl:text>
<xsl:value-of select="1234567890123456789"/><xsl:text>|</xsl:text>
<xsl:value-of select="0.00001"/><xsl:text>|</xsl:text>
<xsl:value-of select="0.000001"/><xsl:text>|</xsl:text>
<xsl:value-of select="123456.789"/><xsl:text>|</xsl:text>
<xsl:value-of select="1000000000.5"/><xsl:text>|</xsl:text>
<xsl:value-of select="2147483648"/><xsl:text>|</xsl:text>
<xsl:value-of select="-2147483649"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(2.5)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(-2.5)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(-0.2)"/><xsl:text>|</xsl:text>
<xsl:value-of select="floor(-1.5)"/><xsl:text>|</xsl:text>
<xsl:value-of select="ceiling(1.2)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(1 div 0)"/><xsl:text>|</xsl:text>
<xsl:value-of select="number(' 12 ')"/><xsl:text>|</xsl:text>
<xsl:value-of select="number('1 2')"/><xsl:text>|</xsl:text>
<xsl:value-of select="number('-.5')"/><xsl:text>|</xsl:text>
<xsl:value-of select="number('+1')"/><xsl:text>|</xsl:text>
<xsl:value-of select="number('1.')"/><xsl:text>|</xsl:text>
<xsl:value-of select="number('')"/><xsl:text>|</xsl:text>
<xsl:value-of select="number(true())"/><xsl:text>|</xsl:text>
<xsl:value-of select="- - 5"/><xsl:text>|</xsl:text>
<xsl:value-of select="1 - 1"/><xsl:text>|</xsl:text>
<xsl:value-of select="3-2"/><xsl:text>|</xsl:text>
<xsl:value-of select="sum(//year)"/><xsl:text>|</xsl:text>
<xsl:value-of select="sum(//@price)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book) * 2"/><xsl:text>|</xsl:text>
<xsl:value-of select=".5 + 5."/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
