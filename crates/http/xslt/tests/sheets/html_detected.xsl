<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><xsl:text> </xsl:text><HTML><BODY><p>a<br/></p></BODY></HTML></xsl:template>
</xsl:stylesheet>
