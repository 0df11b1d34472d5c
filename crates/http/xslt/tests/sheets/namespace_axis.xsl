<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/><xsl:template match="/"><xsl:for-each select="/shop/namespace::*"><xsl:sort select="name()"/><xsl:value-of select="name()"/>=<xsl:value-of select="."/>,</xsl:for-each><xsl:value-of select="count(//namespace::x)"/></xsl:template>
</xsl:stylesheet>
