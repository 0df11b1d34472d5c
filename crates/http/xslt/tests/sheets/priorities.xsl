<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="*">any,</xsl:template><xsl:template match="shop"><xsl:apply-templates select="*"/></xsl:template><xsl:template match="book">book,</xsl:template><xsl:template match="book[note]">note,</xsl:template><xsl:template match="book[@lang='de']" priority="-2">never,</xsl:template><xsl:template match="shop/book[4]">fourth,</xsl:template><xsl:template match="x:*" xmlns:x="urn:x">x,</xsl:template>
</xsl:stylesheet>
