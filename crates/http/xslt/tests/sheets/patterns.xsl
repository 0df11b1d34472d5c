<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r><xsl:apply-templates select="//node()|//@*"/></r></xsl:template><xsl:template match="node()|@*"/><xsl:template match="book/title">t</xsl:template><xsl:template match="shop//b">b</xsl:template><xsl:template match="@id">i</xsl:template><xsl:template match="comment()">c</xsl:template><xsl:template match="processing-instruction('order')">p</xsl:template><xsl:template match="note/text()">n</xsl:template><xsl:template match="id('b3')">ID</xsl:template><xsl:template match="/shop/empty">e</xsl:template><xsl:template match="book[position()=2]/author">a2</xsl:template><xsl:template match="book[last()]/year">ly</xsl:template>
</xsl:stylesheet>
