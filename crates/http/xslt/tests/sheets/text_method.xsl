<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/><xsl:template match="/"><a>x &lt; y</a> &amp; é<xsl:comment>no</xsl:comment></xsl:template>
</xsl:stylesheet>
