<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:variable name="shared">from part</xsl:variable>
<xsl:variable name="over">part</xsl:variable>
<xsl:template match="book">part:<xsl:value-of select="title"/>;</xsl:template>
<xsl:template match="author" priority="9">part-author</xsl:template>
<xsl:template name="greet"><xsl:param name="who" select="'you'"/>hello <xsl:value-of select="$who"/>.</xsl:template>
</xsl:stylesheet>
