<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><r>  a
 <xsl:text>  </xsl:text>
<xsl:text disable-output-escaping="yes">&lt;br&gt;</xsl:text>&amp;<xsl:value-of select="'&lt;'" disable-output-escaping="yes"/><b xml:space="preserve"> <c/> </b></r></xsl:template>
</xsl:stylesheet>
