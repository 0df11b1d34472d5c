<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:exsl="http://exslt.org/common" xmlns:math="http://exslt.org/math" xmlns:set="http://exslt.org/sets" xmlns:str="http://exslt.org/strings" xmlns:dyn="http://exslt.org/dynamic" xmlns:date="http://exslt.org/dates-and-times" xmlns:func="http://exslt.org/functions" xmlns:my="urn:my" exclude-result-prefixes="exsl math set str dyn date func my" extension-element-prefixes="func">
<xsl:output method="text"/>
<xsl:template match="/">
<xsl:value-of select="date:year('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:leap-year('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:leap-year('1900')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:month-in-year('2004-02-29T10:11:12')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:month-name('2004-12')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:month-abbreviation('--03--')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:week-in-year('2005-01-01')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:week-in-month('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-in-year('2004-12-31')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-in-month('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-of-week-in-month('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-in-week('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-name('2004-02-29')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-abbreviation('2004-03-01')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:hour-in-day('10:11:12')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:minute-in-hour('2004-02-29T10:11:12Z')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:second-in-minute('10:11:12.5')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:time('2004-02-29T10:11:12Z')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:date('2004-02-29T10:11:12+02:00')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add('2004-01-31','P1M')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add('2004-02-29','P1Y2M3DT4H')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add('2004','P1M')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add-duration('P1Y','P2M3D')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:difference('2004-01-01','2005-03-02')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:difference('2004','2006-03')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:difference('2004-01-01T00:00:00','2004-01-02T01:02:03')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:duration(90061)"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:seconds('1970-01-02T00:00:00Z')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:seconds('PT1H')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:year('x')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:day-name('x')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add('2004-01-01','-P1D')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add-duration('P1D','-P2D')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:year('-0044-03-15')"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:duration(-60)"/><xsl:text>|</xsl:text>
<xsl:value-of select="date:add('2003-12-31T23:59:59Z','PT2S')"/><xsl:text>|</xsl:text>
</xsl:template>
</xsl:stylesheet>
