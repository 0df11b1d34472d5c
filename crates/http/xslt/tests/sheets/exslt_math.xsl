<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:exsl="http://exslt.org/common" xmlns:math="http://exslt.org/math" xmlns:set="http://exslt.org/sets" xmlns:str="http://exslt.org/strings" xmlns:dyn="http://exslt.org/dynamic" xmlns:date="http://exslt.org/dates-and-times" xmlns:func="http://exslt.org/functions" xmlns:my="urn:my" exclude-result-prefixes="exsl math set str dyn date func my" extension-element-prefixes="func">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="math:min(//year)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:max(//year)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:max(//@price)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:highest(//year)/../@id"/><xsl:text>|</xsl:text>
<xsl:value-of select="count(math:lowest(//year))"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:abs(-2.5)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:sqrt(16)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:power(2,10)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:log(1)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:sin(1)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:cos(1)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:tan(1)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:atan2(1,2)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:exp(1)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:constant('PI',5)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:constant('E',20)"/><xsl:text>|</xsl:text>
<xsl:value-of select="math:min(//none)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:asin(1)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:acos(0.5)*1000)"/><xsl:text>|</xsl:text>
<xsl:value-of select="round(math:atan(1)*1000)"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
