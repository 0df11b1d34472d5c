<!-- books.xml -->
<xsl:stylesheet version="2.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:new><xsl:fallback>instead</xsl:fallback></xsl:new><e:do xmlns:e="urn:e" xsl:extension-element-prefixes="e"><xsl:fallback>again</xsl:fallback></e:do></r></xsl:template>
</xsl:stylesheet>
