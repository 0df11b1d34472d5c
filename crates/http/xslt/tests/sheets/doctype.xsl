<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output doctype-system="s.dtd" doctype-public="-//P" standalone="yes" version="1.0" encoding="utf-8"/><xsl:template match="/"><x:r xmlns:x="urn:x"/></xsl:template>
</xsl:stylesheet>
