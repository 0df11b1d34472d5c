<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output encoding="ISO-8859-1"/><xsl:template match="/"><r a="é€"><xsl:comment>ü</xsl:comment>é€</r></xsl:template>
</xsl:stylesheet>
