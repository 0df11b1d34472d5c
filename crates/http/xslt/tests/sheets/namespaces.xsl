<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:unused="urn:unused" xmlns:gone="urn:gone" exclude-result-prefixes="gone">
<xsl:template match="/"><r xmlns="urn:d" xmlns:p="urn:p" p:a="1"><p:q/><s xmlns=""/><xsl:copy-of select="//x:tag" xmlns:x="urn:x"/><xsl:element name="local"/></r></xsl:template>
</xsl:stylesheet>
