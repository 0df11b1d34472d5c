<!-- tree.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="//book[2][1]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[position()=2 or position()=3][2]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[last()]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[@price][title][author])"/><xsl:text>|</xsl:text>
<xsl:value-of select="//p[1]"/><xsl:text>|</xsl:text>
<xsl:value-of select="(//p)[2]"/><xsl:text>|</xsl:text>
<xsl:value-of select="//section/p[last()]"/><xsl:text>|</xsl:text>
<xsl:value-of select="//section//title[1]"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//section[p][2])"/><xsl:text>|</xsl:text>
<xsl:value-of select="name(//p[.='b1']/ancestor::chapter/title)"/><xsl:text>|</xsl:text>
<xsl:value-of select="//chapter[2]//p"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//title[../p])"/><xsl:text>|</xsl:text>
<xsl:value-of select="//title[string-length(.)=1][3]"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
