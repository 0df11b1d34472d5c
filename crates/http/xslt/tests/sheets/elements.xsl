<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><xsl:element name="{name(*)}"><xsl:element name="p:q" namespace="urn:p"/><xsl:element name="n" namespace="urn:n"><m/></xsl:element></xsl:element></xsl:template>
</xsl:stylesheet>
