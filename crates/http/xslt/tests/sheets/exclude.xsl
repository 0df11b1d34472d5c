<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:a="urn:a" xmlns:b="urn:b" exclude-result-prefixes="a b">
<xsl:template match="/"><r><xsl:if test="1"><a:b/></xsl:if><c a:d="1"/></r></xsl:template>
</xsl:stylesheet>
