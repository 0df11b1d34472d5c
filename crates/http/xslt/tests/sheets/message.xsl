<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><xsl:message>note <b>x</b></xsl:message><r/></xsl:template>
</xsl:stylesheet>
