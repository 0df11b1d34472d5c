<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:apply-templates select="//x:tag|//comment()|/processing-instruction()" xmlns:x="urn:x"/></r></xsl:template><xsl:template match="node()|@*"><xsl:copy/></xsl:template>
</xsl:stylesheet>
