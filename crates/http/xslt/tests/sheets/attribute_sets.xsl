<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:attribute-set name="a" use-attribute-sets="base"><xsl:attribute name="x">a</xsl:attribute><xsl:attribute name="y">a</xsl:attribute></xsl:attribute-set><xsl:attribute-set name="base"><xsl:attribute name="x">base</xsl:attribute><xsl:attribute name="z"><xsl:value-of select="name()"/></xsl:attribute></xsl:attribute-set><xsl:attribute-set name="a"><xsl:attribute name="y">second</xsl:attribute></xsl:attribute-set><xsl:template match="shop"><r xsl:use-attribute-sets="a" y="own"><xsl:element name="e" use-attribute-sets="base a"/><xsl:copy use-attribute-sets="base"/></r></xsl:template>
</xsl:stylesheet>
