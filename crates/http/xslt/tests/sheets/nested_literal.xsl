<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:a="urn:a">
<xsl:template match="/"><xsl:if test="1"><r/></xsl:if><xsl:variable name="v"><s/></xsl:variable></xsl:template>
</xsl:stylesheet>
