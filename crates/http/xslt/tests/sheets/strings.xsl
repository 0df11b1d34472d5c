<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="concat('a',1,true())"/><xsl:text>|</xsl:text>
<xsl:value-of select="starts-with('abc','ab')"/><xsl:text>|</xsl:text>
<xsl:value-of select="contains('abc','')"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring-before('a/b','/')"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring-after('a/b','/')"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('12345',2,3)"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('12345',1.5,2.6)"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('12345',0 div 0)"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('12345',-1,3)"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('12345',2)"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('12345',-42, 1 div 0)"/><xsl:text>|</xsl:text>
<xsl:value-of select="string-length('aéz')"/><xsl:text>|</xsl:text>
<xsl:value-of select="normalize-space('  a   b ')"/><xsl:text>|</xsl:text>
<xsl:value-of select="translate('bar','abc','AB')"/><xsl:text>|</xsl:text>
<xsl:value-of select="translate('aaa','aa','xy')"/><xsl:text>|</xsl:text>
<xsl:value-of select="string(//note)"/><xsl:text>|</xsl:text>
<xsl:value-of select="string-length()"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring('é€x',2,1)"/><xsl:text>|</xsl:text>
<xsl:value-of select="string(1=1)"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring-after('a','')"/><xsl:text>|</xsl:text>
<xsl:value-of select="substring-before('abc','c')"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
