<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="count(//book[2]/ancestor::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/ancestor-or-self::node())"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/attribute::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/child::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/descendant::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/descendant-or-self::node())"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/following::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/following-sibling::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/preceding::node())"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/preceding-sibling::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/parent::*)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/self::book)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/self::x)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/..)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[2]/following::text())"/><xsl:text>|</xsl:text>
<xsl:value-of select="name(//b/ancestor::*[1])"/><xsl:text>|</xsl:text>
<xsl:value-of select="name(//b/ancestor::*[last()])"/><xsl:text>|</xsl:text>
<xsl:value-of select="//year[. = 2004][1]"/><xsl:text>|</xsl:text>
<xsl:value-of select="(//year[. = 2004])[2]"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book/preceding-sibling::*[1]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[4]/preceding-sibling::*[1]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="name(//book[2]/@*[2])"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book/title/..)"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//@*/..)"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
