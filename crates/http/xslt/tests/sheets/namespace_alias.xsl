<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:o="urn:o">
<xsl:namespace-alias stylesheet-prefix="o" result-prefix="xsl"/><xsl:template match="/"><o:stylesheet version="1.0"><o:template match="/"/></o:stylesheet></xsl:template>
</xsl:stylesheet>
