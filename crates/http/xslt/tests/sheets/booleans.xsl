<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="//year = 2004"/><xsl:text>|</xsl:text>
<xsl:value-of select="//year != 2004"/><xsl:text>|</xsl:text>
<xsl:value-of select="//nothing = ''"/><xsl:text>|</xsl:text>
<xsl:value-of select="//year &lt; 1990"/><xsl:text>|</xsl:text>
<xsl:value-of select="not(//year &gt; 2010)"/><xsl:text>|</xsl:text>
<xsl:value-of select="//year = //book[2]/year"/><xsl:text>|</xsl:text>
<xsl:value-of select="true() = 'x'"/><xsl:text>|</xsl:text>
<xsl:value-of select="1 = true()"/><xsl:text>|</xsl:text>
<xsl:value-of select="'1' = 1"/><xsl:text>|</xsl:text>
<xsl:value-of select="'a' &lt; 'b'"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book = true()"/><xsl:text>|</xsl:text>
<xsl:value-of select="//none = false()"/><xsl:text>|</xsl:text>
<xsl:value-of select="boolean('')"/><xsl:text>|</xsl:text>
<xsl:value-of select="boolean('false')"/><xsl:text>|</xsl:text>
<xsl:value-of select="boolean(0)"/><xsl:text>|</xsl:text>
<xsl:value-of select="not(0 div 0)"/><xsl:text>|</xsl:text>
<xsl:value-of select="//author != //author"/><xsl:text>|</xsl:text>
<xsl:value-of select="//year &gt; //@price"/><xsl:text>|</xsl:text>
<xsl:value-of select="1 = 1 and 2 &gt; 3 or 1"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[1]/@id = 'b1'"/><xsl:text>|</xsl:text>
<xsl:value-of select="lang('en')"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
