<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/><xsl:template match="/"><xsl:value-of select="system-property('xsl:version')"/>,<xsl:value-of select="system-property('xsl:vendor')"/>,<xsl:value-of select="system-property('nothing')"/>,<xsl:value-of select="element-available('xsl:for-each')"/>,<xsl:value-of select="element-available('xsl:nothing')"/>,<xsl:value-of select="function-available('key')"/>,<xsl:value-of select="function-available('nokey')"/></xsl:template>
</xsl:stylesheet>
