<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:x="urn:x">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="count(//book|//book[1])"/><xsl:text>|</xsl:text>
<xsl:value-of select="(//title|//author)[2]"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[author='Ida'][2]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[author='Ida' and year=2004]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="//*[@price][last()]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="name(//*[namespace-uri()='urn:x'])"/><xsl:text>|</xsl:text>
<xsl:value-of select="local-name(//*[namespace-uri()='urn:x'])"/><xsl:text>|</xsl:text>
<xsl:value-of select="namespace-uri(//x:tag)"/><xsl:text>|</xsl:text>
<xsl:value-of select="id('b2')/title"/><xsl:text>|</xsl:text>
<xsl:value-of select="id('b1 b3')[2]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(id(//@id))"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[count(*)=4]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[not(note)][position()=2]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="/shop/*[5]/@a"/><xsl:text>|</xsl:text>
<xsl:value-of select="//text()[normalize-space()][1]"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//comment())"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(/node())"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[@price*1 &gt; 10]/@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="string(/)=string(/shop)"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book/@lang"/><xsl:text>|</xsl:text>
<xsl:value-of select="generate-id(//book[1])=generate-id((//book)[1])"/><xsl:text>|</xsl:text>
<xsl:value-of select="generate-id(//none)"/><xsl:text>|</xsl:text>
<xsl:value-of select="unparsed-entity-uri('none')"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(//book[position() mod 2 = 1])"/><xsl:text>|</xsl:text>
<xsl:value-of select="//book[position()=last()-1]/@id"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
