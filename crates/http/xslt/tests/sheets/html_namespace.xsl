<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="html"/><xsl:template match="/"><html xmlns:s="urn:s"><body><s:br/><s:x a="1">t</s:x><svg xmlns="http://www.w3.org/2000/svg"><path d="M0"/></svg></body></html></xsl:template>
</xsl:stylesheet>
