<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output cdata-section-elements="title r"/><xsl:template match="/"><r>a&lt;b]]&gt;c<xsl:copy-of select="//title"/>end</r></xsl:template>
</xsl:stylesheet>
